// <recfusion-list placement="basket" history="id1,id2"> for the pages of a shop: a list of the service this file came
// from. Attributes: placement, kind (recommend, similar or complete), history, item, k, heading, link (such as
// "/products/{item}"), image and price (columns), key (one with `origins` in the key file), and events="off". Style it with ::part(list), ::part(item), ::part(name), ::part(price).
const SERVICE = new URL("..", import.meta.url);
const STYLE = `:host { display: block; container-type: inline-size; } :host([hidden]) { display: none; } h2 { font-size: 1.1em; margin: 0 0 .6em; }
ul { list-style: none; margin: 0; padding: 0; display: grid; gap: 1em; grid-template-columns: repeat(auto-fill, minmax(9em, 1fr)); }
a { color: inherit; text-decoration: none; display: block; box-sizing: border-box; height: 100%; } a:hover [part=name], a:focus-visible [part=name] { text-decoration: underline; }
img { width: 100%; aspect-ratio: 1; object-fit: cover; display: block; } [part=name] { overflow-wrap: anywhere; } [part=price] { opacity: .75; }`;

function visitor() {
	const key = "recfusion-visitor";
	if (!sessionStorage.getItem(key)) sessionStorage.setItem(key, `visitor-${crypto.randomUUID()}`);
	return sessionStorage.getItem(key);
}

function element(name, props, ...children) {
	const made = Object.assign(document.createElement(name), props);
	if (props.part) made.part = props.part;
	made.append(...children);
	return made;
}

class RecfusionList extends HTMLElement {
	static observedAttributes = ["placement", "kind", "history", "item", "k", "key"];
	#root = this.attachShadow({ mode: "open" });
	#wanted = 0;

	connectedCallback() { this.#load(); }
	attributeChangedCallback() { if (this.isConnected) this.#load(); }

	#words(name) { return (this.getAttribute(name) ?? "").split(",").map((one) => one.trim()).filter(Boolean); }

	async #send(path, body, more = {}) {
		const key = this.getAttribute("key"), headers = { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
		const answer = await fetch(new URL(path, SERVICE), { method: "POST", headers, body: JSON.stringify(body), ...more });
		if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `status ${answer.status}`);
		return answer.json();
	}

	async #load() {
		const asked = ++this.#wanted;
		await undefined; // attributes that are set together make one request
		const kind = this.getAttribute("kind") ?? "recommend", k = Number(this.getAttribute("k"));
		if (asked !== this.#wanted || (kind === "similar" && !this.getAttribute("item"))) return;
		const body = { ...(this.hasAttribute("placement") && { placement: this.getAttribute("placement") }), ...(k && { k }),
			...(kind === "similar" ? { item: this.getAttribute("item") ?? "" } : { history: this.#words("history") }) };
		let found;
		try {
			found = await this.#send(kind, body);
		} catch (error) { // a shop page works without recommendations
			console.warn(`recfusion-list: ${error.message}`);
			found = { items: [] };
		}
		if (asked === this.#wanted) this.#show(found.items ?? found.alternatives?.[0]?.items ?? [], found.recommendation_id);
	}

	#show(items, list) {
		const heading = this.getAttribute("heading"), rows = items.map((item) => this.#row(item, list));
		this.#root.replaceChildren(element("style", { textContent: STYLE }));
		this.hidden = rows.length === 0;
		if (heading && rows.length) this.#root.append(element("h2", { textContent: heading }));
		this.#root.append(element("ul", { part: "list" }, ...rows));
		this.dispatchEvent(new CustomEvent("recfusion-shown", { bubbles: true, detail: { items: items.map((item) => item.item) } }));
	}

	#row(item, list) {
		const link = this.getAttribute("link"), image = item.columns?.[this.getAttribute("image") ?? "image_url"], price = item.columns?.[this.getAttribute("price") ?? "price"];
		const parts = [element("span", { part: "name", textContent: item.name })];
		if (image && /^(https?:)?\/|^[\w.-]+\//.test(image)) parts.unshift(element("img", { part: "image", src: image, alt: "", loading: "lazy" }));
		if (price !== undefined && price !== null) parts.push(element("div", { part: "price", textContent: Number.isFinite(price) ? price.toLocaleString(document.documentElement.lang || undefined, { minimumFractionDigits: 2, maximumFractionDigits: 2 }) : price }));
		const box = element(link ? "a" : "div", { ...(link && { href: link.replace("{item}", encodeURIComponent(item.item)) }), part: "item" }, ...parts);
		box.addEventListener("click", () => this.#record(item.item, list));
		return element("li", {}, box);
	}

	#record(item, list) {
		if (this.getAttribute("events") === "off" || !list) return;
		const event = { user: visitor(), item, kind: "click", recommendation_id: list };
		this.#send("events", event, { keepalive: true }).catch((error) => console.warn(`recfusion-list: ${error.message}`));
	}
}

customElements.define("recfusion-list", RecfusionList);
