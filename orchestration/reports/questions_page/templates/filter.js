"use strict";
const questions = document.getElementById("questions");
const articles = Array.from(questions.children);
const texts = new Map(articles.map((one) => [one, one.textContent.toLowerCase()]));
const control = (id) => document.getElementById(id);

function isShown(one, task, outcome, words) {
  const found = one.dataset.outcome;
  const isFlip = found === "wrong right" || found === "right wrong";
  return (!task || one.dataset.task === task)
    && (!outcome || (outcome === "flip" ? isFlip : found === outcome))
    && words.every((word) => texts.get(one).includes(word));
}

function applyFilters() {
  const task = control("task").value, outcome = control("outcome").value;
  const words = control("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const one of articles) {
    one.hidden = !isShown(one, task, outcome, words);
    count += one.hidden ? 0 : 1;
  }
  control("status").textContent = `${count.toLocaleString("en")} of ${articles.length.toLocaleString("en")} questions`;
}

function applyOrder() {
  const order = control("order").value, name = order.replace("-", ""), sign = order.startsWith("-") ? -1 : 1;
  const rank = (one) => (name === "" ? Number(one.dataset.at)
    : one.dataset[name] === "" ? Infinity : sign * Number(one.dataset[name]));
  const sorted = [...articles].sort((a, b) => rank(a) - rank(b) || a.dataset.at - b.dataset.at);
  questions.append(...sorted);
}

control("filters").hidden = false;
control("filters").addEventListener("submit", (event) => event.preventDefault());
for (const id of ["task", "outcome"]) control(id).addEventListener("change", applyFilters);
control("search").addEventListener("input", applyFilters);
control("order").addEventListener("change", applyOrder);
applyOrder();  // a browser may restore the controls of an earlier visit
applyFilters();
