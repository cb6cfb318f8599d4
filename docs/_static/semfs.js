// What the theme and the gallery leave out for people who use a keyboard or a screen reader.

// Boxes that scroll sideways can be reached with the keyboard. The theme does this for tables and code.
const SCROLLING = ".semfs-wide, .bd-article p:has(> img), .sphx-glr-script-out, .output_subarea, mjx-container";

function addTabStops() {
  for (const box of document.querySelectorAll(SCROLLING)) {
    if (box.scrollWidth > box.clientWidth) {
      box.tabIndex = 0;
    } else {
      box.removeAttribute("tabindex");
    }
  }
}

// Buttons that show only a picture get a name.
function addNames() {
  for (const summary of document.querySelectorAll(".bd-sidebar summary")) {
    const page = summary.closest("li").querySelector("a");
    summary.setAttribute("aria-label", `Pages below ${page.textContent.trim()}`);
  }
  for (const example of document.querySelectorAll(".sphx-glr-thumbcontainer")) {
    const title = example.querySelector(".sphx-glr-thumbnail-title");
    example.querySelector("a").setAttribute("aria-label", title.textContent);
  }
}

window.addEventListener("load", addTabStops);
window.addEventListener("load", addNames);
window.addEventListener("resize", addTabStops);
