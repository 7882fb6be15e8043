// Sorts and filters the table of outcomes, then draws the charts with Vega-Lite.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);

  // The table. Cells are read once; rows are only moved and hidden, so thousands stay quick.
  const table = byId("records");
  const heads = [...table.tHead.rows[0].cells];
  const size = Number(table.dataset.first);
  const names = heads.map((head) => head.textContent.trim());
  const rows = [...table.tBodies[0].rows].map((row, place) => ({ row, place }));
  const count = (number) => `${number.toLocaleString("en")} ${number === 1 ? "outcome" : "outcomes"}`;
  let order = rows;
  let all = false;

  const key = ({ row }, column) => row.cells[column].dataset.k ?? row.cells[column].textContent.trim();
  const parts = ({ row }) => [...row.cells].map((cell) => cell.textContent).concat(row.dataset.case);
  const text = (one) => (one.text ??= parts(one).join(" ").toLowerCase());

  // A word that begins or ends with a digit does so in the text too: Lq1 does not find Lq1024.
  const digit = (one) => one !== undefined && one >= "0" && one <= "9";
  const holds = (whole, word) => {
    for (let at = whole.indexOf(word); at >= 0; at = whole.indexOf(word, at + 1)) {
      const cut = (digit(word[0]) && digit(whole[at - 1])) || (digit(word.at(-1)) && digit(whole[at + word.length]));
      if (!cut) return true;
    }
    return false;
  };

  const filter = () => {
    const words = byId("f-words").value.toLowerCase().split(/\s+/).filter(Boolean);
    const exact = [...document.querySelectorAll("#filters select")]
      .filter((select) => select.value !== "")
      .map((select) => [names.indexOf(select.name), select.value]);
    const found = order.filter(
      (one) => exact.every(([column, value]) => key(one, column) === value) && words.every((word) => holds(text(one), word)),
    );
    const shown = new Set(all ? found : found.slice(0, size));
    for (const one of rows) one.row.hidden = !shown.has(one);
    byId("count").textContent =
      found.length === rows.length ? count(rows.length) : `${found.length.toLocaleString("en")} of ${count(rows.length)}`;
    byId("more").hidden = shown.size === found.length;
    byId("more").textContent = `Show all ${found.length.toLocaleString("en")}; ${shown.size} are shown`;
  };

  const sort = (column) => {
    const direction = heads[column].getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].setAttribute("aria-sort", direction);
    const keys = rows.map((one) => key(one, column));
    const numeric = keys.every((one) => !isNaN(Number(one)));
    const sign = direction === "ascending" ? 1 : -1;
    order = [...rows].sort((a, b) => {
      const [left, right] = [keys[a.place], keys[b.place]];
      // Empty cells come last in both directions.
      if (left === "" || right === "") return (left === "") - (right === "") || a.place - b.place;
      return sign * (numeric ? left - right : left < right ? -1 : left > right ? 1 : 0) || a.place - b.place;
    });
    table.tBodies[0].append(...order.map((one) => one.row));
    filter();
  };

  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => sort(column)));
  byId("filters").addEventListener("input", filter);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("reset", () => setTimeout(filter));
  byId("more").addEventListener("click", () => {
    all = true;
    filter();
  });
  filter();
  performance.mark("interactive");

  // The charts. Text and lines take the colour of the page, light or dark.
  const ink = "currentColor";
  const config = {
    background: null,
    font: "system-ui, sans-serif",
    axis: {
      labelColor: ink, titleColor: ink, domainColor: ink, tickColor: ink, gridColor: ink, gridOpacity: 0.12,
      domainOpacity: 0.4, tickOpacity: 0.4, labelFontSize: 11.5, titleFontWeight: 500, titleFontSize: 12,
    },
    legend: { labelColor: ink, titleColor: ink, labelFontSize: 12, titleFontWeight: 500 },
    view: { stroke: ink, strokeOpacity: 0.12 },
  };
  // Vega looks names up in plain objects, where this one is not a key; an invisible character makes it one.
  const safe = (_, value) => (value === "__proto__" ? "__proto__\u2060" : value);
  const data = () => (data.read ??= JSON.parse(byId("chart-data").textContent, safe));
  const unique = (chosen, field) => [...new Set(chosen.map((row) => row[field]).filter((one) => one !== undefined))];

  const fill = (node, values) => {
    if (Array.isArray(node)) return node.map((one) => fill(one, values));
    if (node === null || typeof node !== "object") return node;
    if ("$" in node) return values(node.$);
    return Object.fromEntries(Object.entries(node).map(([name, one]) => [name, fill(one, values)]));
  };

  const draw = async (figure) => {
    const name = figure.dataset.chart;
    const { backends, colours, shapes, specs } = data();
    const view = safe("", figure.querySelector("select")?.value ?? figure.querySelector(".view").textContent);
    if (figure.dataset.drawn === view) return;
    const chosen = data().rows.filter((row) => row[`in_${name}`] === view);
    const placed = new Map(chosen.map((row) => [row.backend, backends.indexOf(row.of)]));
    const named = [...placed.keys()].sort((a, b) => placed.get(a) - placed.get(b));
    const places = named.map((backend) => placed.get(backend));
    const values = (field) => {
      if (field === "rows") return chosen;
      if (field === "backend") return named;
      if (field === "colours") return places.map((place) => colours[place % colours.length]);
      // Past the last colour they begin again, with other shapes.
      if (field === "shapes")
        return places.map((place) => shapes[(place + Math.floor(place / colours.length)) % shapes.length]);
      return unique(chosen, field);
    };
    const canvas = figure.querySelector(".canvas");
    const left = data().rows.filter((row) => row[`out_${name}`] === view).map((row) => row[`left_${name}`]);
    figure.querySelector(".note").textContent = left.length ? `${figure.dataset.leftOut}: ${left.join(", ")}.` : "";
    const views = figure.querySelectorAll("option").length;
    figure.querySelector(".chosen")?.replaceChildren(`${view} (one of ${views}; the page has the others)`);
    figure.drawn?.finalize();
    figure.backends = places.length;
    const options = { actions: false, renderer: "svg", ast: true, config, tooltip: { theme: "custom" } };
    figure.drawn = await vegaEmbed(canvas, fill(specs[name], values), options);
    figure.dataset.drawn = view;
  };

  // A table that scrolls sideways says so above itself. Charts are as wide as their frames.
  const hint = () => {
    for (const frame of document.querySelectorAll(".scroll:has(table)")) {
      const wide = frame.scrollWidth > frame.clientWidth + 4;
      const told = frame.previousElementSibling?.classList.contains("hint") ? frame.previousElementSibling : null;
      if (wide && !told) {
        const words = document.createElement("p");
        words.className = "hint";
        words.textContent = "More columns to the right: scroll the table →";
        frame.before(words);
      } else if (!wide) told?.remove();
    }
  };
  addEventListener("resize", hint);
  document.addEventListener("toggle", hint, true);
  hint();

  // On paper a reader can't open what is folded, and a chart drawn for a screen would have tiny letters.
  // Three backends stand in a row of a legend. Names at the ends of lines are a share of the height apart.
  // Charts of points have none, and one for each run: they may be low.
  const paper = { width: 660, height: (name, backends) => (name === "roofline" ? 150 : 255) + 14 * Math.ceil(backends / 3) };
  const fit = ({ drawn, backends, dataset }) =>
    drawn.view.width(paper.width).height(paper.height(dataset.chart, backends)).run();
  // A browser without a window prints as soon as the page is loaded. Drawing waits for nothing but promises, so
  // what begins here is done before the browser lays out the paper.
  addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("details.on-paper")) one.open = true;
    for (const figure of figures) figure.drawn ? fit(figure) : draw(figure).then(() => fit(figure));
  });
  addEventListener("afterprint", () => {
    for (const { drawn } of figures) drawn?.view.height(drawn.vgSpec.height).run();
    dispatchEvent(new Event("resize"));
  });

  const figures = [...document.querySelectorAll("figure[data-chart]")];
  // One after the other: of two draws in one place the slower would win. Frames are not waited for, since a
  // browser without a window and a page in the background have none.
  let queue = Promise.resolve();
  const later = (figure) => (queue = queue.then(() => new Promise((next) => setTimeout(next))).then(() => draw(figure)));
  for (const figure of figures) {
    figure.querySelector("select")?.addEventListener("change", () => later(figure));
    later(figure);
  }
})();
