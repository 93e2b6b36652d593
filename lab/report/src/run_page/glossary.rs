//! The meaning of every number.

/// Words of the page and their meanings.
pub(crate) const TERMS: &[(&str, &str)] = &[
    (
        "Offered load",
        "Requests per second that users want to make. A slow cache does not reduce it.",
    ),
    (
        "Throughput",
        "Right and complete answers per second. A wrong answer counts as an error only.",
    ),
    (
        "Sustained",
        "Throughput, averaged over only those samples of the last quarter whose load the controller judged sustained.",
    ),
    (
        "± (steadiness)",
        "Half of the 95 % interval of the throughput, from the means of six equal parts of the last quarter. A repeat may \
         differ by it. The laboratory's own work for an answer is always the same: where it takes longer, the machine is \
         slower.",
    ),
    (
        "Response time",
        "From the moment a request was due, not from the moment it could be sent, to the last byte of its answer. Waiting for \
         a connection is part of it.",
    ),
    (
        "Added time",
        "Response time minus the simulated delays: the server's think time and link for a miss, and the user's link. The rest \
         is the time in the cache and in queues.",
    ),
    (
        "Hit",
        "An answer to a plain GET whose request the server did not see. Hit ratio: hits ÷ answers to plain GETs.",
    ),
    ("Byte hit ratio", "The same counted in bytes of bodies."),
    (
        "Ideal, offered",
        "The share of plain GETs for cachable objects that were requested before. Ideal: computed from the workload. Offered: \
         counted in the requests of this run. A real cache stays a little below: a first request that was answered with \
         304, was a HEAD or was aborted gives it nothing to store.",
    ),
    (
        "Fill ratio",
        "Bytes of cachable answers to plain GETs that were not hits, ÷ size of the cache: what \
         could have been stored. At 1 a cache that stored all of it is full and begins to \
         replace; at 2 it has replaced everything once. Answers to reloads and revalidations are \
         written too but not counted.",
    ),
    (
        "Stored",
        "Bytes in the stores, as the subject itself says it, ÷ size of the cache. Heads, reloads \
         and the units in which a store takes its room count too, so it may be more than fill.",
    ),
    (
        "Written per byte stored",
        "Bytes that the store's own devices wrote in the last quarter (or, without such devices, \
         that the subject's processes made the disks write), ÷ bytes of the objects that the \
         subject says it stored in that time.",
    ),
    (
        "Memory per object",
        "Growth of resident memory during the run, ÷ growth of the number of objects in its \
         stores. Objects that are kept in memory count with what they hold.",
    ),
    (
        "Flatness",
        "Slope of throughput over fill ratio from 0.5 to 2.0, in per cent of the mean throughput \
         for each unit of fill. Neighbouring samples are alike, so the line goes through the \
         means of six equal parts, and the 95 % interval comes from their distances to it. Not \
         known if a part has fewer than five good samples.",
    ),
    (
        "Last quarter",
        "The samples in the last 25 % of the fill ratio that was reached. The summary and the distributions are of these.",
    ),
    ("p50, p95, p99", "50, 95, 99 of 100 answers were faster than this."),
    (
        "Backlog",
        "Requests that are due and not answered. Waiting: the part of them that could not even be sent.",
    ),
    (
        "Wrong content",
        "A byte, a head, a version or a freshness that this URL cannot have at this moment. Every byte of every answer is checked.",
    ),
    (
        "Spoiled sample",
        "The laboratory's users or servers had no CPU time left, or were late, or others had the processors. Such a sample is \
         repeated and is in no figure of the last quarter.",
    ),
    (
        "CPU time per answer",
        "CPU time (user and system) of all processes of the subject in the last quarter, ÷ its answers.",
    ),
];
