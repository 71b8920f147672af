// The model card and the last evaluation, for people who are no statisticians.
import { count, number, tags } from "./dom.js";
import { state } from "./store.js";

const { article, b, circle, dd, div, dl, dt, h2, h3, p, section, svg } = tags;

const percent = (value) => `${number(100 * value)} %`;

// A hundred dots, as many of them filled as hundredths were reached.
function waffle(share) {
  const full = Math.round(100 * share);
  return svg({ class: "waffle", viewBox: "0 0 200 50", "aria-hidden": "true" },
    Array.from({ length: 100 }, (_, n) => circle({ key: n, class: n < full ? "full" : "", cx: (n % 20) * 10 + 5, cy: Math.floor(n / 20) * 10 + 5, r: 3.6 })));
}

const KINDS = {
  calibrated_recall: (k, value) => `The first ${k} suggestions held ${percent(value)} of what was hidden.`,
  recall: (k, value) => `The first ${k} suggestions held ${percent(value)} of what was hidden.`,
  ndcg: (k, value) => `${number(100 * value)} of 100 points for order over ${k} places: 100 would be every hidden thing at the very top.`,
};

function metric(name, { mean, ci95 }) {
  const [kind, k] = name.split("@"), word = KINDS[kind];
  return section({ key: name, class: "metric" },
    waffle(mean),
    p(null, word ? word(k, mean) : `${name}: ${number(mean, 3)}.`),
    ci95 && p({ class: "note" }, `With other people it would probably be between ${number(100 * ci95[0])} and ${number(100 * ci95[1])}.`));
}

function gain(against) {
  return Object.entries(against).slice(-1).map(([name, { mean, ci95 }]) =>
    p({ key: name }, `Against the recipe before it, on the same people: ${mean >= 0 ? "better" : "worse"} by ${number(Math.abs(100 * mean), 1)} points of ${name}`,
      ci95 && ` (${ci95[0] > 0 || ci95[1] < 0 ? "beyond chance" : "which may be chance"})`, "."));
}

function card(one) {
  const [fold, values] = ["test", "valid"].map((name) => [name, one.metrics?.[name]]).find(([, found]) => found) ?? [];
  const users = Object.values(values ?? {})[0]?.users;
  return section(
    { key: one.name, class: "card" },
    h3(null, one.name),
    p(null, one.title && one.title[0].toUpperCase() + one.title.slice(1) + "."),
    dl({ class: "facts" }, [
      ["Learned from", one.users && count(one.users, "person", "people")],
      ["Knows", count(one.items ?? state.model.items, "item")],
      ["Data", one.data],
    ].filter(([, value]) => value).map(([name, value]) => div({ key: name }, dt(null, name), dd(null, value)))),
    h3(null, "How good is it?"),
    values
      ? [
          p(null, `Of ${users ? count(users, "person", "people") : "people"} whom it had not learned from, a part of what they like was hidden. The model saw the rest and made a list for each.`),
          div({ class: "metrics" }, Object.entries(values).map(([name, value]) => metric(name, value))),
          one.metrics.against && gain(one.metrics.against),
          fold === "valid" && p({ class: "note" }, "Its settings may have been chosen on these people: on others it will do a little worse."),
        ]
      : p(null, "Nobody has judged it yet: it learned from everybody, and no one was left to ask. Training with --judge does both."),
    h3(null, "What it does not know"),
    p(null, "It knows which things people had, not why. It repeats the habits of its data, and it leans to what is popular there. Nothing in it keeps an unsuitable item from a list: filters do that."),
  );
}

export function model() {
  return article({ class: "about-model", "aria-labelledby": "model-title" },
    h2({ id: "model-title" }, "About the model"),
    state.model.models.map(card));
}
