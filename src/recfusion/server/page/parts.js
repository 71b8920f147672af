// What several views are made of.
import { tags } from "./dom.js";
import { add } from "./store.js";

const { article, button, div, h2, input, label, p, span } = tags;

// The columns of the item table as one short line.
export const about = ({ name, columns }) =>
	p({ class: "about" }, Object.entries(columns ?? {})
		.filter(([, value]) => value !== null && value !== "" && value !== name)
		.map(([key, value]) => (typeof value === "string" ? value.replaceAll("|", " · ") : value === true ? key : value === false ? "" : `${key} ${value}`))
		.filter(Boolean).join(" · "));

export const act = (sign, words, onclick, more) =>
	button({ class: "act", "aria-label": words, title: words, onclick, ...more }, sign);
export const plus = (one, more) => act("+", `Put ${one.name} on the shelf`, () => add(one), more);
export const chip = (one) =>
	button({ key: one.item, class: "chip", "aria-label": `Put ${one.name} on the shelf`, onclick: () => add(one) }, span({ class: "sign" }, "+"), one.name);
// A view: its name, its title, a sentence, and what it shows.
export const view = (name, title, lead, ...rest) => article({ class: name, "aria-label": title }, h2(null, title), lead && p({ class: "lead" }, lead), rest);
export const heard = (words) => span({ class: "hidden" }, words); // by screen readers alone
export const plain = (words, onclick) => button({ class: "plain", onclick }, words);
export const trouble = (error) => error && p({ class: "error", role: "alert" }, error);

export const track = (from, to) => ({ "--from": `${100 * from}%`, "--to": `${100 * to}%` });

export function slider({ id, title, low, high, least = 0, most = 1, step = 0.05, value, set }) {
	const place = (value - least) / (most - least), middle = least < 0 ? 0.5 : 0;
	const told = value === 0 ? "at rest" : step === 1 ? value : `${Math.round(100 * Math.abs(value))} % towards ${value > 0 ? high : low}`;
	return div({ class: "slider", key: id },
		label({ for: id }, title),
		input({
			id, type: "range", min: least, max: most, step, value, "aria-valuetext": told, style: track(Math.min(place, middle), Math.max(place, middle)),
			oninput: (event) => set(Number(event.target.value)),
			ondblclick: () => set(Math.max(0, least)),
		}),
		div({ class: "ends", "aria-hidden": "true" }, span(null, low), span(null, high)));
}
