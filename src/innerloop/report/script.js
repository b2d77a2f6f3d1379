// Everything here is a convenience: without it commands can be selected by hand, figures open as
// plain links, and folded details open by a click.
document.documentElement.classList.add("scripted");

for (const button of document.querySelectorAll(".copy")) {
  button.addEventListener("click", async () => {
    const code = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      // A page opened from a file may not reach the clipboard: leave the text selected instead.
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
}

const lightbox = document.getElementById("lightbox");
const enlarged = lightbox.querySelector("img");
for (const link of document.querySelectorAll(".enlarge")) {
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const image = link.querySelector("img");
    enlarged.src = image.src;
    enlarged.alt = image.alt;
    lightbox.showModal();
  });
}
lightbox.addEventListener("click", (event) => {
  if (event.target === lightbox || event.target === enlarged) lightbox.close();
});

function unfoldTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  target?.querySelector(":scope > details")?.setAttribute("open", "");
}
addEventListener("hashchange", unfoldTarget);
unfoldTarget();

// Formulas too long for half the width get the whole of it, and a little less size if that is not
// enough; what is longer still can be scrolled.
function fitFormulas() {
  const overflows = (box) => box.scrollWidth > box.clientWidth + 1;
  for (const sides of document.querySelectorAll(".sides")) {
    const boxes = [...sides.querySelectorAll(".scroll")];
    sides.classList.toggle("stacked", boxes.some(overflows));
  }
  for (const box of document.querySelectorAll(".formula .scroll")) {
    const share = box.clientWidth / box.scrollWidth;
    if (overflows(box) && share > 0.75) box.style.fontSize = `${Math.floor(98 * share)}%`;
  }
}
fitFormulas();
