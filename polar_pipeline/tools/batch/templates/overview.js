"use strict";
// The list of recordings: rows from the data, their order, and which are shown. Texts are set as text, never as HTML.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const decimals = new Map(data.columns);
  const [table, filter, status, count] = ["table", "filter", "status", "count"].map((id) => document.getElementById(id));
  const body = table.tBodies[0];
  const headings = [...table.tHead.querySelectorAll("button")];
  const keys = new Set(headings.map((button) => button.dataset.key));
  const words = new Intl.Collator("en", { numeric: true });

  const add = (parent, tag, text, name) => {
    const element = parent.appendChild(document.createElement(tag));
    if (text) element.textContent = text;
    if (name) element.className = name;
    return element;
  };

  const link = (parent, address, text) => {
    if (address) add(parent, "a", text).href = address;
  };

  const addMinutes = (row) => {
    const line = document.createElement("tr");
    const cell = add(line, "td");
    cell.colSpan = headings.length;
    const list = document.getElementById("minutes").content.cloneNode(true);
    for (const minute of row.minutes) {
      const entry = add(list.querySelector("tbody"), "tr");
      for (const key of ["start", "lowest", "at", "dropped", "saturated"]) {
        add(entry, "td", minute[key], key === "start" || key === "at" ? "text" : "");
      }
    }
    const about = [row.start && `starts ${row.start} UTC`, row.repeated && `${row.repeated} repeated frames`,
      row.layout && `layout ${row.layout}`, row.max !== undefined && `slowest frame ${row.max} ms`, row.device];
    add(list.firstChild, "span", about.filter(Boolean).join("; "), "small");
    cell.append(list);
    return line;
  };

  const addName = (line, row) => {
    const cell = add(line, "td", "", "first text");
    if (row.thumbnail) {
      const image = add(cell, "img");
      image.loading = "lazy";
      image.alt = "";
      image.src = row.thumbnail;
    }
    add(cell, "span", row.name, "name");
    const small = add(cell, "span", "", "small");
    link(small, row.report, "report");
    link(small, row.table, "table");
    if (row.minutes.length) {
      const button = add(small, "button", "minutes", "plain");
      button.type = "button";
      button.setAttribute("aria-expanded", "false");
      button.addEventListener("click", () => {
        if (row.details) {
          row.details.remove();
          row.details = null;
        } else {
          row.details = addMinutes(row);
          line.after(row.details);
        }
        button.setAttribute("aria-expanded", String(Boolean(row.details)));
      });
    }
  };

  const makeLine = (row) => {
    const line = document.createElement("tr");
    addName(line, row);
    const result = add(line, "td", "", "text reason");
    add(result, "b", row.status, row.status === "ok" ? "good" : "bad");
    if (row.reason) add(result, "span", row.reason, "small");
    for (const [key, digits] of data.columns) {
      const value = row[key];
      const cell = add(line, "td", value === undefined || value === null ? "" : value.toFixed(digits));
      if (key === "lowest" && row.at) add(cell, "span", row.at, "small");
    }
    return line;
  };

  for (const row of data.rows) {
    row.line = makeLine(row);
    row.text = [row.name, row.reason, row.device].join("\n").toLowerCase();
  }

  // the order and the filter are in the address: #sort=lowest&order=ascending&filter=night&status=ok
  const state = { sort: "", order: "ascending", filter: "", status: "" };

  const read = () => {
    const parameters = new URLSearchParams(location.hash.slice(1));
    state.sort = keys.has(parameters.get("sort")) ? parameters.get("sort") : "";
    state.order = parameters.get("order") === "descending" ? "descending" : "ascending";
    state.filter = parameters.get("filter") || "";
    state.status = data.statuses.includes(parameters.get("status")) ? parameters.get("status") : "";
    [filter.value, status.value] = [state.filter, state.status];
  };

  const write = () => {
    const parameters = new URLSearchParams();
    for (const [name, value] of Object.entries(state)) if (value && (name !== "order" || state.sort)) parameters.set(name, value);
    history.replaceState(null, "", `#${parameters}`);
  };

  const compare = (key, sign) => (a, b) => {
    const [x, y] = [a[key], b[key]];
    if (key === "name") return sign * words.compare(x, y);
    if (key === "status") return sign * (data.statuses.indexOf(x) - data.statuses.indexOf(y));
    const [hasX, hasY] = [typeof x === "number", typeof y === "number"];
    return hasX && hasY ? sign * (x - y) : hasY - hasX; // without a value: last in both orders
  };

  const sort = () => {
    const rows = [...data.rows];
    if (state.sort) rows.sort(compare(state.sort, state.order === "ascending" ? 1 : -1));
    const lines = document.createDocumentFragment();
    for (const row of rows) lines.append(row.line, ...(row.details ? [row.details] : []));
    body.replaceChildren(lines);
    for (const button of headings) {
      button.closest("th").setAttribute("aria-sort", button.dataset.key === state.sort ? state.order : "none");
    }
  };

  const condition = (term) => {
    const parts = /^([a-z0-9]+)(<=|>=|<|>|=)(-?[0-9.]+)$/.exec(term);
    if (!parts || !decimals.has(parts[1])) return (row) => row.text.includes(term);
    const [key, sign, limit] = [parts[1], parts[2], Number(parts[3])];
    const test = { "<": (x) => x < limit, ">": (x) => x > limit, "<=": (x) => x <= limit, ">=": (x) => x >= limit,
      "=": (x) => x === limit }[sign];
    return (row) => typeof row[key] === "number" && test(row[key]);
  };

  const show = () => {
    const tests = state.filter.toLowerCase().split(/\s+/).filter(Boolean).map(condition);
    let visible = 0;
    for (const row of data.rows) {
      const isVisible = (!state.status || row.status === state.status) && tests.every((test) => test(row));
      row.line.hidden = !isVisible;
      if (row.details) row.details.hidden = !isVisible;
      visible += isVisible;
    }
    count.textContent = `${visible} of ${data.rows.length} recordings`;
  };

  const change = (values) => {
    Object.assign(state, values);
    write();
    show();
  };

  table.tHead.addEventListener("click", (event) => {
    const key = event.target.closest("button")?.dataset.key;
    if (!key) return;
    const isSame = state.sort === key;
    change({ sort: key, order: isSame && state.order === "ascending" ? "descending" : "ascending" });
    sort();
  });
  filter.addEventListener("input", () => change({ filter: filter.value }));
  status.addEventListener("change", () => change({ status: status.value }));
  document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());
  for (const button of document.querySelectorAll("button[data-recording]")) {
    button.addEventListener("click", () => {
      filter.value = button.dataset.recording;
      change({ filter: filter.value, status: "" });
      status.value = "";
      document.getElementById("recordings").scrollIntoView();
      filter.focus();
    });
  }
  const start = () => {
    read();
    sort();
    show();
  };
  addEventListener("hashchange", () => {
    if (!location.hash || location.hash.includes("=")) start(); // else a link within the page
  });
  start();
})();
