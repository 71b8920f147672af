// The model card and the last evaluation, for people who are no statisticians.
import { count, number, tags } from "./dom.js";
import { state } from "./store.js";
import { view } from "./parts.js";

const { circle, dd, details, div, dl, dt, h3, li, p, section, summary, svg, ul } = tags;
const sentence = (text) => text && `${text[0].toUpperCase()}${text.slice(1)}.`;

// A hundred dots, as many of them filled as hundredths were reached.
const waffle = (share) =>
	svg({ class: "waffle", viewBox: "0 0 200 50", "aria-hidden": "true" }, Array.from({ length: 100 }, (_, n) =>
		circle({ class: n < Math.round(100 * share) && "full", cx: (n % 20) * 10 + 5, cy: Math.floor(n / 20) * 10 + 5, r: 3.6 })));

const metric = ({ metric, mean, ci95, words }) =>
	section({ key: metric, class: "metric" }, waffle(mean), p(null, words),
		ci95 && p({ class: "note" }, `With other people it would probably be ${number(100 * ci95[0])} to ${number(100 * ci95[1])} in 100.`));

function card(one) {
	const { data, users, items, interactions, preparation } = one.trained_on;
	const judged = ["test", "valid"].map((who) => one.metrics.filter(({ judged_on }) => judged_on === who)).find((found) => found.length);
	const facts = { "Learned from": users && count(users, "person", "people"), "Things they had": interactions && number(interactions), Knows: count(items, "item"), Data: data, "Kind of model": one.model };
	return section({ key: one.name, class: "card" },
		h3(null, one.name),
		p(null, sentence(one.title)),
		dl({ class: "facts" }, Object.entries(facts).filter(([, value]) => value).map(([name, value]) => div({ key: name }, dt(null, name), dd(null, value)))),
		h3(null, "How good is it?"),
		judged
			? [
					p(null, "Some people were kept aside while it learned. It saw a part of what each of them had, and made a list. Was the rest in it?"),
					div({ class: "metrics" }, judged.map(metric)),
					judged[0].judged_on === "valid" && p({ class: "note" }, "Its settings may be chosen for these people: with others it will do a little worse."),
				]
			: p(null, "Nobody has judged it: it learned from everybody. `recfusion train --all-users --judge` does both."),
		one.metrics.filter(({ judged_on }) => judged_on === "against").map(({ metric, words }) => p({ key: metric, class: "note" }, words)),
		h3(null, "What it does not know"),
		p(null, "It knows what people had, not why, and repeats the habits of its data. Nothing in it keeps an unsuitable item from a list: filters do that."),
		one.holds_histories && p({ class: "note" }, "It holds rows of its training data, without people’s ids: treat its folder as you treat the data."),
		details(null, summary(null, "How the data was prepared"), ul(null, preparation.map((line) => li({ key: line }, line)))),
		one.licence && p({ class: "note" }, `Licence of the data: ${one.licence}`));
}

export const model = () => view("models", "About the model", "", state.model.models.map(card));
