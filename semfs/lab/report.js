// The report's behavior: draw the panels, hide and show methods, hand out the CSV file.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const all = (selector) => [...document.querySelectorAll(selector)];

  // Large texts are stored compressed; every browser since 2023 can unpack them.
  async function unpack(id) {
    const bytes = Uint8Array.from(atob(byId(id).textContent.trim()), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  // --- the CSV file
  async function download() {
    // Excel takes a file for UTF-8 only if it starts with a byte order mark.
    const url = URL.createObjectURL(new Blob(["\ufeff", await unpack("csv")], { type: "text/csv" }));
    const link = { href: url, download: byId("csv").dataset.name };
    Object.assign(document.createElement("a"), link).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
  for (const button of all("[data-csv]")) {
    button.hidden = false;
    button.addEventListener("click", download);
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

  // --- on paper all folds are open, and afterwards as they were
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all("details:not([open])");
    for (const details of folded) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of folded) details.open = false;
  });

  // --- figures
  const { panels, colors } = JSON.parse(byId("plots").textContent);
  const boxes = all(".plot");
  if (!panels.length) return;

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // plotly.js reads tags and entities in every label.
  const label = (text) =>
    String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const number = (value) => {
    const size = Math.abs(value);
    return value !== 0 && (size < 5e-4 || size >= 1e5) ? value.toPrecision(3) : value.toFixed(3);
  };
  const hover = (name, ...lines) => [`<b>${label(name)}</b>`, ...lines.map(label)].join("<br>");
  const symbols = "circle square diamond triangle-up x star triangle-down cross".split(" ");

  const names = Object.keys(colors);
  function curve(panel, name, points) {
    const place = names.indexOf(name);
    const color = colors[name];
    const oracle = /\((oracle|reference)\)$/i.test(name); // cannot be used in practice
    const text = ([x, y, spread, remark]) =>
      hover(name, `${panel.x}: ${x}`,
        `${panel.y}: ${number(y)}` + (spread === null ? "" : ` ± ${number(spread)}`), remark);
    return {
      key: name, name: label(name), type: "scatter", mode: "lines+markers",
      x: points.map((p) => p[0]), y: points.map((p) => p[1]),
      error_y: { array: points.map((p) => p[2]), thickness: 1, width: 2, visible: false },
      hoverinfo: "text", hovertext: points.map(text),
      line: { color, dash: oracle ? "dot" : "solid", width: oracle ? 1.6 : place ? 2.3 : 3.4 },
      marker: { color, size: 7, symbol: symbols[place % symbols.length] },
    };
  }

  // Names at the places 0, 1, …: equal names must not fall on one place.
  const longest = innerWidth < 600 ? 22 : 36; // on a phone names would fill the screen
  function ticks(names, marked = []) {
    const text = (name) => {
      const short = label(name.length <= longest ? name : `${name.slice(0, longest - 1)}…`);
      return marked.includes(name) ? `<b>${short}</b>` : short;
    };
    return { tickvals: names.map((_, i) => i), ticktext: names.map(text) };
  }

  function dots({ x, series, color }) {
    const points = Object.keys(series).flatMap((name, i) => series[name].map((p, j) => [i, j, name, ...p]));
    return {
      type: "scatter", mode: "markers", x: points.map((p) => p[1]), y: points.map((p) => p[0]),
      hoverinfo: "text",
      hovertext: points.map(([, , name, at, , , remark]) => hover(name, `${x}: ${at}`, remark)),
      marker: {
        size: points.map((p) => (p[5] === null ? 9 : 16 * Math.sqrt(p[5]))),
        symbol: points.map((p) => (p[5] === null ? "diamond" : "circle")),
        color: points.map((p) => p[4]),
        colorscale: "YlOrRd", reversescale: true, showscale: true,
        colorbar: { title: { text: label(color) }, thickness: 12 }, opacity: 1,
        line: { width: 0.5, color: "#888" },
      },
    };
  }

  // From what deserves a look to what does not; or from -1 to 1.
  const warm = [[0, "#a50f15"], [0.25, "#ef6548"], [0.5, "#fdbb84"], [1, "#eef1f5"]];
  const cool = [[0, "#2166ac"], [0.25, "#92c5de"], [0.5, "#eef1f5"], [0.75, "#f4a582"], [1, "#b2182b"]];

  function fields({ x, series, color, limits }) {
    const rows = Object.values(series);
    const names = Object.keys(series);
    const [first, last] = limits || [undefined, undefined];
    const backwards = first > last;
    const [zmin, zmax] = backwards ? [last, first] : [first, last];
    return {
      type: "heatmap", z: rows.map((row) => row.map((p) => p[1])), zmin, zmax,
      hoverinfo: "text", hoverongaps: false, xgap: 1, ygap: 1,
      hovertext: rows.map((row, i) => row.map((p) => hover(names[i], `${x}: ${p[0]}`, p[2]))),
      colorscale: zmin < 0 ? cool : warm, reversescale: backwards,
      colorbar: { title: { text: label(color) }, thickness: 12 },
    };
  }

  // Rows of a point with its interval; those whose interval has 0 in it are hollow.
  function forest({ x, series }) {
    const rows = Object.entries(series).map(([name, [point]]) => [name, ...point]);
    const clear = ([, , low, high]) => low !== null && (low > 0 || high < 0);
    return {
      type: "scatter", mode: "markers", accent: true,
      x: rows.map((r) => r[1]), y: rows.map((_, i) => i),
      error_x: {
        symmetric: false, thickness: 2, width: 4, visible: rows.some((r) => r[2] !== null),
        array: rows.map((r) => (r[3] === null ? 0 : r[3] - r[1])),
        arrayminus: rows.map((r) => (r[2] === null ? 0 : r[1] - r[2])),
      },
      hoverinfo: "text",
      hovertext: rows.map(([name, mean, low, high, remark]) =>
        hover(name, `${x}: ${number(mean)}` + (low === null ? "" : ` (${number(low)} to ${number(high)})`), remark)),
      marker: { size: 10, line: { width: 2 }, symbol: rows.map((r) => (clear(r) ? "circle" : "circle-open")) },
    };
  }
  const zero = { type: "line", x0: 0, x1: 0, yref: "paper", y0: 0, y1: 1, layer: "below" };

  const plots = panels.map((panel) => {
    if (panel.kind === "forest") {
      const names = Object.keys(panel.series);
      const yaxis = { ...ticks(names), range: [names.length - 0.5, -0.5], showgrid: false, zeroline: false };
      return {
        traces: [forest(panel)], shapes: [zero], yaxis,
        xaxis: { title: { text: label(panel.x) }, zeroline: false, nticks: 5, tickangle: 0 },
      };
    }
    if (panel.kind === "dots" || panel.kind === "heat") {
      const columns = (Object.values(panel.series)[0] || []).map((p) => p[0]);
      // The first line of a grid of classes is not zero; behind colored fields there is no grid.
      const grid = { zeroline: false, showgrid: panel.kind === "dots" };
      const rows = Object.keys(panel.series);
      // The first row is on top; half a column of room on every side.
      const yaxis = { ...ticks(rows, panel.marked), ...grid, range: [rows.length - 0.4, -0.6] };
      const trace = panel.kind === "dots" ? dots(panel) : fields(panel);
      const xaxis = { ...ticks(columns), ...grid, tickangle: -60, range: [-0.6, columns.length - 0.4] };
      return { traces: [trace], xaxis, yaxis };
    }
    const axis = (name, title) => ({
      title: { text: label(title) },
      ...(panel.log.includes(name) ? { type: "log", exponentformat: "power" } : {}),
    });
    const drawn = names.filter((name) => name in panel.series);
    const traces = drawn.map((name) => curve(panel, name, panel.series[name]));
    return { traces, xaxis: axis("x", panel.x), yaxis: axis("y", panel.y) };
  });

  function layoutOf(plot) {
    const ink = css("--ink");
    for (const trace of plot.traces.filter((trace) => trace.accent)) {
      trace.marker.color = css("--accent");
      trace.marker.line.color = css("--accent");
      trace.error_x.color = css("--accent");
    }
    const shapes = (plot.shapes || []).map((shape) => ({ ...shape, line: { color: ink, width: 1.5 } }));
    const axis = {
      automargin: true, gridcolor: css("--line"), zerolinecolor: css("--quiet"), linecolor: ink,
    };
    return {
      font: { family: "system-ui, sans-serif", size: 13, color: ink },
      hoverlabel: { bgcolor: css("--card"), bordercolor: ink, font: { color: ink } },
      showlegend: false, hovermode: "closest", shapes,
      dragmode: false, // a finger on a figure scrolls the page
      paper_bgcolor: css("--card"), plot_bgcolor: css("--card"),
      margin: { l: 52, r: 10, t: 8, b: 44 },
      xaxis: { ...axis, ...plot.xaxis }, yaxis: { ...axis, ...plot.yaxis },
    };
  }

  // Buttons inside a figure would be out of reach of screen readers; ours are beside it.
  const config = { responsive: true, displayModeBar: false, typesetMath: false };

  function drawAll() {
    plots.forEach((plot, i) => Plotly.react(boxes[i], plot.traces, layoutOf(plot), config));
  }

  // name of a method -> is it shown?
  const inputs = all("input[data-key]");
  const shown = new Map(inputs.map((input) => [input.dataset.key, input.checked]));
  function toggle(key, on) {
    shown.set(key, on);
    for (const input of inputs) if (input.dataset.key === key) input.checked = on;
  }
  function apply() {
    for (const trace of plots.flatMap((plot) => plot.traces)) {
      trace.visible = shown.get(trace.key) !== false;
    }
    drawAll();
  }

  function connect() {
    for (const input of inputs) {
      input.addEventListener("change", () => { toggle(input.dataset.key, input.checked); apply(); });
    }
    for (const button of all("button[data-all]")) {
      const inFieldset = [...button.closest("fieldset").querySelectorAll("input[data-key]")];
      button.addEventListener("click", () => {
        for (const input of inFieldset) toggle(input.dataset.key, button.dataset.all === "show");
        apply();
      });
    }
    for (const input of all("input[data-spread]")) {
      input.addEventListener("change", () => {
        for (const other of all("input[data-spread]")) other.checked = input.checked;
        for (const trace of plots.flatMap((plot) => plot.traces)) {
          if (trace.error_y) trace.error_y.visible = input.checked;
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
