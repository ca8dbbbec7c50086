const varz = await (await fetch("/varz", { cache: "no-store" })).json();
document.getElementById("varz").textContent = JSON.stringify(varz, null, 2);
