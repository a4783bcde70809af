const data = document.getElementById("report-data").textContent;
const link = document.getElementById("download");
link.href = URL.createObjectURL(new Blob([data], { type: "application/json" }));
link.hidden = false;
