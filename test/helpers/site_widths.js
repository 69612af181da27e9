// Loads every page of the documentation site in frames of several widths, and writes what does not fit into the page.
// `PAGES` and `WIDTHS` are defined before.
const WORD = /[\p{L}\p{N}_]+/gu;
const ARGUMENT = /(?<!\S)[\w-]+(?!\S)/g;

// Words of running text, tables and commands that are broken over lines. Slashes may end a line, in running text hyphens
// too.
function* brokenWords(page) {
  const texts = page.createTreeWalker(page.querySelector("article"), NodeFilter.SHOW_TEXT);
  const range = page.createRange();
  while (texts.nextNode()) {
    const text = texts.currentNode;
    const isCommand = text.parentElement.closest(".language-sh pre");
    if (!isCommand && text.parentElement.closest("pre, svg, script, style")) continue;
    for (const { 0: word, index } of text.data.matchAll(isCommand ? ARGUMENT : WORD)) {
      range.setStart(text, index);
      range.setEnd(text, index + word.length);
      const tops = [...range.getClientRects()].map((box) => Math.round(box.top));
      if (new Set(tops).size > 1) yield word;
    }
  }
}

function* misfits(page, width, isPhone) {
  const view = page.scrollingElement;
  if (view.scrollWidth > width) yield `the page is ${view.scrollWidth} pixels wide`;
  for (const code of page.querySelectorAll("pre > code")) {
    const box = code.parentElement.getBoundingClientRect();
    const scrolls = ["auto", "scroll"].includes(getComputedStyle(code).overflowX);
    if (box.right > width + 1 || (code.scrollWidth > code.clientWidth + 1 && !(isPhone && scrolls)))
      yield `cut code: ${code.textContent.trim().slice(0, 60)}`;
  }
  if (!isPhone) {
    for (const table of page.querySelectorAll("article table"))
      if (table.parentElement.scrollWidth > table.parentElement.clientWidth + 1 || table.scrollWidth > table.clientWidth + 1)
        yield `cut table: ${table.textContent.trim().slice(0, 60)}`;
    for (const code of page.querySelectorAll(".language-sh pre > code, .language-bash pre > code")) {
      const { lineHeight, paddingTop, paddingBottom } = getComputedStyle(code);
      const height = code.clientHeight - parseFloat(paddingTop) - parseFloat(paddingBottom);
      const lines = code.textContent.trimEnd().split("\n").length;
      if (Math.round(height / parseFloat(lineHeight)) > lines) yield `wrapped command: ${code.textContent.trim().slice(0, 60)}`;
    }
  }
  for (const image of page.querySelectorAll("article img"))
    if (image.getBoundingClientRect().right > width + 1) yield `cut picture: ${image.src}`;
  for (const word of brokenWords(page)) yield `broken word: ${word}`;
  yield* fixedPictures(page);
}

// Pictures that a click does not enlarge, or another click does not put away; a picture may be a link instead.
function* fixedPictures(page) {
  for (const image of page.querySelectorAll("article img")) {
    if (image.closest("a:not(.picture)")) continue;
    const before = image.getBoundingClientRect().width;
    image.click();
    const dialog = page.querySelector("dialog[open]");
    if (!(dialog?.querySelector("img").getBoundingClientRect().width > before)) yield `not enlarged: ${image.src}`;
    dialog?.click();
    if (page.querySelector("dialog[open]")) yield `stays enlarged: ${image.src}`;
  }
}

async function measure() {
  const found = [];
  const frame = document.createElement("iframe");
  document.body.append(frame);
  for (const width of WIDTHS) {
    frame.style = `border: 0; height: 900px; width: ${width}px`;
    for (const name of PAGES) {
      const loaded = new Promise((done) => frame.addEventListener("load", done, { once: true }));
      frame.src = name;
      await loaded;
      const page = frame.contentDocument;
      await page.fonts.ready;
      for (const text of misfits(page, width, width < 600)) found.push(`${name} at ${width} pixels: ${text}`);
    }
  }
  const report = document.createElement("pre");
  report.id = "report";
  report.textContent = JSON.stringify({ pages: PAGES.length * WIDTHS.length, found });
  frame.remove();
  document.body.append(report);
}

addEventListener("load", measure);
