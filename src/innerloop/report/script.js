// Everything here is a convenience: without it commands can be selected by hand, figures open as
// plain links, folded details open by a click, and nothing is filtered out.
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

// Formulas too long for half the width get the whole of it, and a little less size if that is not
// enough; what is longer still can be scrolled.
function fitFormulas() {
  // All is measured before anything is changed: a page of a hundred formulas is laid out once.
  const overflows = (box) => box.scrollWidth > box.clientWidth + 1;
  const tight = [...document.querySelectorAll(".sides")].filter((sides) =>
    [...sides.querySelectorAll(".scroll")].some(overflows),
  );
  for (const sides of tight) sides.classList.add("stacked");
  const shares = [...document.querySelectorAll(".formula .scroll")]
    .filter(overflows)
    .map((box) => [box, box.clientWidth / box.scrollWidth]);
  for (const [box, share] of shares) {
    if (share > 0.75) box.style.fontSize = `${Math.floor(98 * share)}%`;
  }
}
fitFormulas();

// The filter. Its state is the address, as in #?text=flow&paper=zhang2023; any other address after
// # is an anchor, which is always shown.
const filter = document.querySelector(".filter");
const cards = [...document.querySelectorAll("article[data-id]")];
const total = new Set(cards.map((card) => card.dataset.id)).size;

function searched(card) {
  card.searched ??= `${card.dataset.text} ${card.textContent}`.toLowerCase();
  return card.searched;
}

function applyFilter() {
  const { text, paper, verdict } = Object.fromEntries(new FormData(filter));
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = new Set();
  for (const card of cards) {
    const { id, verdict: own } = card.dataset;
    card.hidden = !(
      (!paper || id.startsWith(`${paper}/`)) &&
      (!verdict || own === verdict) &&
      words.every((word) => searched(card).includes(word))
    );
    if (!card.hidden) shown.add(id);
  }
  for (const item of document.querySelectorAll("nav [data-id]")) {
    item.hidden = !shown.has(item.dataset.id);
  }
  for (const list of document.querySelectorAll("nav ul ul")) {
    list.parentElement.hidden = !list.querySelector("li:not([hidden])");
  }
  for (const heading of document.querySelectorAll("main .kind")) {
    let next = heading.nextElementSibling;
    while (next?.matches("article[hidden]")) next = next.nextElementSibling;
    heading.hidden = !next?.matches("article");
  }
  const active = Boolean(paper || verdict || words.length);
  for (const section of document.querySelectorAll("main .paper")) {
    section.hidden = active && !section.querySelector("article:not([hidden])");
  }
  filter.querySelector("output").value = `${shown.size} of ${total}`;
  filter.querySelector("button").disabled = !active;
}

function rememberFilter() {
  const state = [...new FormData(filter)].filter(([, value]) => value.trim());
  history.replaceState(null, "", state.length ? `#?${new URLSearchParams(state)}` : "#");
}

function readAddress() {
  const address = location.hash.slice(1);
  if (address.startsWith("?")) {
    const state = new URLSearchParams(address.slice(1));
    for (const name of ["text", "paper", "verdict"]) {
      filter.elements[name].value = state.get(name) ?? "";
      // A paper or verdict that is not in this report leaves nothing chosen: choose all.
      if (filter.elements[name].selectedIndex === -1) filter.elements[name].value = "";
    }
    applyFilter();
    return;
  }
  const target = document.getElementById(address);
  if (target?.closest("[hidden]")) {
    filter.reset();
    target.scrollIntoView();
  }
  target?.querySelector(":scope > details")?.setAttribute("open", "");
}

filter.hidden = false;
filter.addEventListener("input", () => {
  applyFilter();
  rememberFilter();
  // What is left may be far above where the reader was. In the next frame, which lays the page out
  // in any case: asked for here, every letter would do so once more.
  const main = filter.parentElement;
  requestAnimationFrame(() => {
    if (main.getBoundingClientRect().top < 0) main.scrollIntoView();
  });
});
filter.addEventListener("submit", (event) => event.preventDefault());
filter.addEventListener("reset", () => {
  // The controls are emptied after this event: by hand now, so that the page follows at once.
  for (const name of ["text", "paper", "verdict"]) filter.elements[name].value = "";
  applyFilter();
  if (location.hash.startsWith("#?")) rememberFilter();
});
addEventListener("keydown", (event) => {
  const typing = document.activeElement?.matches("input, select");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    filter.elements.text.focus();
  }
});
addEventListener("hashchange", readAddress);
applyFilter();
readAddress();
