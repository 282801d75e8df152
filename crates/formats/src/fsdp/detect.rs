use super::names::RankName;
use crate::archive::ZIP;
use crate::{Probe, Score};

/// Scores an archive of `torch.save` with a distributed tensor, or a file with the name of a rank's.
pub(crate) fn score(probe: &Probe<'_>) -> Score {
    let head = probe.head();
    let name = RankName::parse(probe.name());
    let is_named = name.is_some_and(|name| name.world().is_some());
    // Files of a distributed checkpoint of torch may hold any object.
    match head.starts_with(ZIP) && !probe.name().ends_with(".distcp") {
        true if is_named => return Score::Member,
        true => {}
        // The reader reports its fault, and joins the other ranks.
        false if is_named => return Score::Named,
        false => return Score::No,
    }
    // Other objects of the library are in checkpoints of all kinds.
    let holds = |text: &[u8]| memchr::memmem::find(head, text).is_some();
    let is_distributed = holds(b"ctorch.distributed.tensor\nDTensor\n")
        || holds(b"ctorch.distributed._tensor.api\nDTensor\n")
        || holds(b"_shard.sharded_tensor.api\nShardedTensor\n");
    if is_distributed { Score::Member } else { Score::No }
}
