"use strict";
// A card's body waits packed until it is opened: thousands of tables would take seconds to lay out.
const cards = [...document.querySelectorAll("details.card")];
const chunks = [...document.querySelectorAll("script[data-first]")];
const unpacked = new Map();
async function unpack(chunk) {
  const bytes = Uint8Array.from(atob(chunk.textContent), (letter) => letter.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(plain).text());
}
async function fill(card) {
  if (card.querySelector(":scope > .body")) return;
  const place = cards.indexOf(card);
  const chunk = chunks.findLast((one) => cards.indexOf(document.getElementById(one.dataset.first)) <= place);
  if (!unpacked.has(chunk)) unpacked.set(chunk, unpack(chunk));
  const bodies = await unpacked.get(chunk);
  if (!card.querySelector(":scope > .body")) card.insertAdjacentHTML("beforeend", bodies[card.id]);
}
for (const card of cards) card.addEventListener("toggle", () => { if (card.open) fill(card); });
async function follow() {
  const card = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!card || !card.matches("details.card")) return;
  card.hidden = false;
  await fill(card);
  card.open = true;
  card.scrollIntoView();
  card.querySelector("summary").focus({ preventScroll: true });
}
addEventListener("hashchange", follow);
follow();
const form = document.getElementById("filter");
if (form) {
  const [search, state, mode, rule] = ["search", "state", "mode", "rule"].map((id) => document.getElementById(id));
  const texts = new Map();
  const text = (card) => {
    if (!texts.has(card)) texts.set(card, `${card.querySelector("summary").textContent} ${card.dataset.more}`.toLowerCase());
    return texts.get(card);
  };
  const apply = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const card of cards) {
      const data = card.dataset;
      const fits = (!state.value || data.state === state.value) && (!mode.value || data.mode === mode.value)
        && (!rule.value || data.rule === rule.value) && words.every((word) => text(card).includes(word));
      card.hidden = !fits;
      shown += fits;
    }
    document.getElementById("count").textContent = `${shown} of ${cards.length}`;
    document.getElementById("none").hidden = shown > 0;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
}
