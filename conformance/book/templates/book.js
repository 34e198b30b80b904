"use strict";
// The search box: every word must be found; titles count most. On a narrow screen the contents start closed.
const box = document.getElementById("q");
const found = document.getElementById("found");
const root = document.body.dataset.root;
const MOST = 12;
let at = -1;

if (matchMedia("(max-width: 52rem)").matches) document.querySelector("details.menu").open = false;

const rows = INDEX.map(([path, title, section, says, words]) => ({
  path, title, section, says,
  name: title.toLowerCase(),
  all: `${title} ${section} ${says} ${words}`.toLowerCase(),
}));

function score(row, words) {
  let total = 0;
  for (const word of words) {
    if (row.name === word) total += 100;
    else if (row.name.startsWith(word)) total += 20;
    else if (row.name.includes(word)) total += 10;
    else if (row.all.includes(word)) total += 1;
    else return 0;
  }
  return total;
}

function show() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  at = -1;
  found.replaceChildren();
  found.hidden = !words.length;
  if (!words.length) return;
  const hits = rows.map((row) => [score(row, words), row]).filter(([total]) => total > 0);
  hits.sort((a, b) => b[0] - a[0]);
  for (const [, row] of hits.slice(0, MOST)) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = root + row.path;
    link.textContent = row.title;
    const says = document.createElement("small");
    says.textContent = `${row.section}: ${row.says}`;
    item.append(link, says);
    found.append(item);
  }
  if (!hits.length) {
    const item = document.createElement("li");
    item.textContent = "Nothing found.";
    found.append(item);
  }
}

function move(by) {
  const items = [...found.querySelectorAll("li")].filter((item) => item.querySelector("a"));
  if (!items.length) return;
  at = (at + by + items.length) % items.length;
  items.forEach((item, number) => item.classList.toggle("at", number === at));
  items[at].scrollIntoView({ block: "nearest" });
}

box.addEventListener("input", show);
box.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown") move(1);
  else if (event.key === "ArrowUp") move(-1);
  else if (event.key === "Escape") { box.value = ""; show(); }
  else return;
  event.preventDefault();
});
document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const links = found.querySelectorAll("a");
  if (links.length) location.href = links[Math.max(at, 0)].href;
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== box) { event.preventDefault(); box.focus(); }
});
