// Asks for the newest state every two seconds, and keeps what the reader has opened.
(() => {
  let known = "";
  let failures = 0;
  const main = document.getElementById("main");
  const ask = async () => {
    try {
      const answer = await fetch("main", { headers: known ? { "If-None-Match": known } : {}, cache: "no-store" });
      failures = 0;
      if (answer.status === 200) {
        known = answer.headers.get("ETag") ?? "";
        const open = [...main.querySelectorAll("details")].map((part) => part.open);
        main.innerHTML = await answer.text();
        main.querySelectorAll("details").forEach((part, index) => { part.open = open[index] ?? false; });
      }
    } catch {
      failures += 1;
      // The run is over, or the laboratory is gone: the page stays, and says so.
      if (failures === 3) {
        const over = document.createElement("p");
        over.className = "lead";
        over.textContent = "The laboratory has stopped answering; this is its last state.";
        main.prepend(over);
      }
    }
    setTimeout(ask, failures < 3 ? 2000 : 10000);
  };
  setTimeout(ask, 2000);
})();
