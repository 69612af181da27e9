// A click on a picture enlarges it over the page; another click or Escape closes it.
for (const image of document.querySelectorAll(".md-content img")) {
  if (image.closest("a")) continue;
  const link = document.createElement("a");
  link.className = "picture";
  link.href = image.src;
  image.replaceWith(link);
  link.append(image);
  link.addEventListener("click", (event) => {
    event.preventDefault();
    const dialog = document.createElement("dialog");
    dialog.className = "picture";
    dialog.append(image.cloneNode());
    dialog.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  });
}
