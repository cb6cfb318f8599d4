// The report's behaviour: draw the panels, hide and show methods, hand out CSV files.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const read = (id) => JSON.parse(byId(id).textContent);

  // Large texts are stored compressed; every browser since 2023 can unpack them.
  async function unpack(id) {
    const bytes = Uint8Array.from(atob(byId(id).textContent.trim()), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  // --- CSV files
  let files = null;
  async function download(number) {
    files = files || JSON.parse(await unpack("csv-files"));
    const { name, text } = files[number];
    // Excel takes a file for UTF-8 only if it starts with a byte order mark.
    const url = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv" }));
    const link = Object.assign(document.createElement("a"), { href: url, download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
  for (const button of all("[data-csv]")) {
    button.hidden = false;
    button.addEventListener("click", () => download(Number(button.dataset.csv)));
  }

  // --- tables wider than the page say so
  function hint() {
    for (const box of all(".scroll")) {
      box.previousElementSibling.classList.toggle("wide", box.scrollWidth > box.clientWidth + 1);
    }
  }
  hint();
  addEventListener("resize", hint);
  for (const details of all("details")) details.addEventListener("toggle", hint);

  // --- figures
  const plots = read("plots");
  const boxes = all(".plot");
  if (!plots.length) return;

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function layoutOf(plot) {
    const ink = css("--ink");
    const axis = { gridcolor: css("--line"), zerolinecolor: css("--line"), linecolor: ink };
    const font = { family: "system-ui, sans-serif", size: 13, color: ink };
    const hoverlabel = { bgcolor: css("--card"), bordercolor: ink, font: { color: ink } };
    const layout = {
      font, hoverlabel, barmode: "group", showlegend: false, hovermode: "closest",
      dragmode: false, // a finger on a figure scrolls the page
      paper_bgcolor: css("--card"), plot_bgcolor: css("--card"),
      margin: { l: 52, r: 10, t: 8, b: 44 },
    };
    for (const name of ["xaxis", "yaxis"]) {
      layout[name] = { automargin: true, ...axis, ...plot.layout[name] };
    }
    return layout;
  }

  // Buttons inside a figure would be out of reach of screen readers; ours are beside it.
  const config = { responsive: true, displayModeBar: false, typesetMath: false };

  function drawAll() {
    plots.forEach((plot, i) => Plotly.react(boxes[i], plot.traces, layoutOf(plot), config));
  }

  // key of a method -> is it shown?
  const shown = new Map(all("input[data-key]").map((input) => [input.dataset.key, input.checked]));
  function toggle(key, on) {
    shown.set(key, on);
    for (const input of all(`input[data-key="${key}"]`)) input.checked = on;
  }
  function apply() {
    for (const plot of plots) {
      plot.traces.forEach((trace, j) => {
        trace.visible = plot.keys[j] === null || shown.get(plot.keys[j]) !== false;
      });
    }
    drawAll();
  }

  function connect() {
    for (const input of all("input[data-key]")) {
      input.addEventListener("change", () => { toggle(input.dataset.key, input.checked); apply(); });
    }
    for (const button of all("button[data-all]")) {
      const inputs = [...button.closest("fieldset").querySelectorAll("input[data-key]")];
      button.addEventListener("click", () => {
        for (const input of inputs) toggle(input.dataset.key, button.dataset.all === "show");
        apply();
      });
    }
    for (const input of all("input[data-spread]")) {
      input.addEventListener("change", () => {
        for (const other of all("input[data-spread]")) other.checked = input.checked;
        for (const plot of plots) {
          for (const trace of plot.traces) if (trace.error_y) trace.error_y.visible = input.checked;
        }
        drawAll();
      });
    }
    for (const button of all("[data-save]")) {
      const filename = `figure-${button.dataset.save}`;
      button.hidden = false;
      button.addEventListener("click", () => {
        Plotly.downloadImage(boxes[Number(button.dataset.save)], { format: "svg", filename });
      });
    }
    for (const controls of all("fieldset.methods")) controls.disabled = false;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
    matchMedia("print").addEventListener("change", drawAll);
  }

  async function start() {
    const library = document.createElement("script");
    library.textContent = await unpack("plotly");
    document.head.append(library);
    apply();
    connect();
    document.documentElement.dataset.ready = "yes";
  }
  start().catch((error) => {
    for (const box of boxes) box.textContent = `This browser cannot draw the figure (${error}).`;
    console.error(error);
  });
})();
