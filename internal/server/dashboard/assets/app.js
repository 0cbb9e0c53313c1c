// What needs a script and nothing more: copying, times in the reader's own
// zone, and reading a page again while somebody looks at it.

function localTimes(root) {
  for (const t of root.querySelectorAll("time[datetime]")) {
    const at = new Date(t.dateTime);
    if (!Number.isNaN(at.valueOf())) t.title = `${at.toLocaleString()} (your time) · ${t.title}`;
  }
}

function copyButtons(root) {
  if (!navigator.clipboard) return;
  for (const button of root.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
        button.textContent = "Copied";
        document.getElementById("said").textContent = "Copied.";
      } catch {
        const text = document.createElement("p");
        text.textContent = "The browser did not let the page copy. Select the text and copy it.";
        document.getElementById("status").replaceChildren(text);
        return;
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
}

// stale says since when the page shows what may have changed, and why.
let refreshed = new Date();
function stale(why, signIn) {
  const line = document.createElement("p");
  line.textContent = `Not refreshed since ${refreshed.toLocaleTimeString()}: ${why} `;
  if (signIn) {
    const link = document.createElement("a");
    link.href = location.href;
    link.textContent = "Sign in again";
    line.append(link);
  }
  const place = document.getElementById("stale");
  if (place.textContent !== line.textContent) place.replaceChildren(line);
}

// refresh puts what the server says now in place of every part that is marked,
// except where somebody is at work. It is no use of the session.
async function refresh() {
  if (document.hidden) return;
  const headers = { Accept: "text/html", "Guildhall-Refresh": "1" };
  const response = await fetch(location.href, { headers, credentials: "same-origin", redirect: "error" });
  if (response.status === 401) return stale("your session has ended.", true);
  if (response.status === 404) return stale("there is nothing here any more, or nothing that you may see.");
  if (!response.ok) return stale("the server cannot answer now. It is asked again every few seconds.");
  refreshed = new Date();
  document.getElementById("stale").replaceChildren();
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live][id]")) {
    const next = fresh.getElementById(part.id);
    if (!next || part.contains(document.activeElement) || part.querySelector("details[open]")) continue;
    if (next.innerHTML === part.dataset.was) continue;
    part.dataset.was = next.innerHTML;
    part.replaceChildren(...next.childNodes);
    localTimes(part);
    copyButtons(part);
  }
}

localTimes(document);
copyButtons(document);
const main = document.querySelector("main[data-refresh]");
if (main) setInterval(() => { refresh().catch(() => stale("the server does not answer. It is asked again every few seconds.")); }, Number(main.dataset.refresh) * 1000);
