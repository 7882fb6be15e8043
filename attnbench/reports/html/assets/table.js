// The table of outcomes: sorted by the buttons in its heads, filtered, and shown a page at a time.
// Cells are read once, and rows are only moved and hidden, so that thousands stay quick.
"use strict";
(() => {
  const table = document.getElementById("records");
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const size = Number(table.dataset.page);
  const names = heads.map((head) => head.textContent.trim());
  const entries = [...body.rows].map((row, place) => ({ row, place }));
  let order = entries;
  let matching = entries;
  let first = 0;

  const at = (entry, column) => {
    const cell = entry.row.cells[column];
    return cell.dataset.k ?? cell.textContent.trim();
  };
  const text = (entry) => (entry.text ??= `${entry.row.textContent} ${entry.row.cells[1].title}`.toLowerCase());
  const value = (id) => document.getElementById(id)?.value ?? "";

  // Not by disabled: a button that is disabled loses the focus of the keyboard that pressed it.
  const allow = (id, can) => document.getElementById(id).setAttribute("aria-disabled", String(!can));

  const show = () => {
    const chosen = new Set(matching.slice(first, first + size));
    for (const entry of entries) entry.row.hidden = !chosen.has(entry);
    const count = matching.length.toLocaleString("en");
    const all = entries.length.toLocaleString("en");
    const outcomes = `${all} ${entries.length === 1 ? "outcome" : "outcomes"}`;
    document.getElementById("count").textContent =
      matching.length === entries.length ? outcomes : `${count} of ${outcomes}`;
    const last = Math.min(first + size, matching.length);
    document.getElementById("pager").hidden = matching.length <= size;
    document.getElementById("where").textContent = `${matching.length ? first + 1 : 0} to ${last} of ${count}`;
    allow("earlier", first > 0);
    allow("later", last < matching.length);
  };

  const filter = () => {
    const words = value("f-words").toLowerCase().split(/\s+/).filter(Boolean);
    const exact = ["run", "backend", "status", "verdict"]
      .map((name) => [names.indexOf(name), value(`f-${name}`)])
      .filter(([column, wanted]) => column >= 0 && wanted !== "");
    matching = order.filter(
      (entry) =>
        exact.every(([column, wanted]) => at(entry, column) === wanted) &&
        words.every((word) => text(entry).includes(word)),
    );
    first = 0;
    show();
  };

  const sort = (column) => {
    const head = heads[column];
    const direction = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction);
    const keys = entries.map((entry) => at(entry, column));
    const numeric = keys.every((key) => !isNaN(Number(key)));
    const sign = direction === "ascending" ? 1 : -1;
    const compare = (a, b) => {
      const left = keys[a.place];
      const right = keys[b.place];
      // What has nothing there comes last, whichever way.
      if (left === "" || right === "") return (left === "") - (right === "") || a.place - b.place;
      const less = numeric ? left - right : left < right ? -1 : left > right ? 1 : 0;
      return sign * less || a.place - b.place;
    };
    order = [...entries].sort(compare);
    body.append(...order.map((entry) => entry.row));
    filter();
  };

  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => sort(column)));
  const form = document.getElementById("filters");
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(filter));
  const turn = (id, by) => {
    if (document.getElementById(id).getAttribute("aria-disabled") === "true") return;
    first = Math.max(0, first + by);
    show();
    table.parentElement.scrollTop = 0;
  };
  document.getElementById("earlier").addEventListener("click", () => turn("earlier", -size));
  document.getElementById("later").addEventListener("click", () => turn("later", size));
  filter();
})();
