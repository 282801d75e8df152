//! Work whose parts other workers can process: its results can be sent.

use serde::Serialize;
use serde::de::DeserializeOwned;
use statelens_compare::diff::Comparing;
use statelens_compare::verify::Verifying;
use statelens_tensor::Work;
use statelens_values::weights::Surveying;

/// A [`Work`] whose parts have the same results in any worker.
pub(crate) trait SharedWork: Work {
    /// Packs the result of a part; `None` if it can't be sent, as the error of a read.
    fn pack(found: Self::Found) -> Option<Vec<u8>>;

    /// Unpacks the result of a part.
    fn unpack(bytes: &[u8]) -> Option<Self::Found>;
}

impl SharedWork for Surveying {
    fn pack(found: Self::Found) -> Option<Vec<u8>> {
        packed(&found.ok()?)
    }

    fn unpack(bytes: &[u8]) -> Option<Self::Found> {
        unpacked(bytes).map(Ok)
    }
}

impl SharedWork for Comparing {
    fn pack(found: Self::Found) -> Option<Vec<u8>> {
        packed(&found.ok()?)
    }

    fn unpack(bytes: &[u8]) -> Option<Self::Found> {
        unpacked(bytes).map(Ok)
    }
}

impl SharedWork for Verifying {
    fn pack(found: Self::Found) -> Option<Vec<u8>> {
        packed(&found)
    }

    fn unpack(bytes: &[u8]) -> Option<Self::Found> {
        unpacked(bytes)
    }
}

fn packed(found: &impl Serialize) -> Option<Vec<u8>> {
    postcard::to_allocvec(found).ok()
}

fn unpacked<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use statelens_checkpoint::{
        Checkpoint, Error, FileSet, Limits, Memory, Result, TensorId, Unwatched,
    };
    use statelens_compare::diff::{Comparison, DiffOptions};
    use statelens_compare::verify::Verification;
    use statelens_formats::checks::Checks;
    use statelens_tensor::{BUFFER, Buffer, InOrder, drive};
    use statelens_values::weights::Survey;

    use super::*;

    /// Opens float32 values of which every 97th is NaN, infinite or zero; `step` sets the others.
    fn opened(step: f32) -> Arc<Checkpoint> {
        let values = (0..60_000_u16).map(|at| match at % 97 {
            0 => [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0][usize::from(at / 97 % 4)],
            _ => (f32::from(at) * step).sin(),
        });
        let body: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        let header = r#"{"a":{"dtype":"F32","shape":[100,200],"data_offsets":[0,80000]},"b":{"dtype":"BF16","shape":[80000],"data_offsets":[80000,240000]}}"#;
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.bytes());
        file.extend(body);
        let files = FileSet::single("x.safetensors", Memory(Arc::new(file)));
        Arc::new(statelens_formats::open(files, &Limits::default(), &mut Unwatched).unwrap())
    }

    fn process<W: SharedWork>(machine: &InOrder<W>, part: usize) -> W::Found {
        let mut begun = machine.work().begin(part).unwrap();
        let read = match &mut begun {
            Some(part) => drive(part, &mut Buffer::new(BUFFER), &mut Unwatched),
            None => Ok(()),
        };
        machine.work().end(part, begun, read)
    }

    /// Combines the results of all parts after they were packed and unpacked.
    fn sent<W: SharedWork>(machine: &mut InOrder<W>) {
        assert!(machine.work().parts() > 1);
        for part in 0..machine.work().parts() {
            let packed = W::pack(process(machine, part)).unwrap();
            let found = W::unpack(&packed).unwrap();
            let (work, mut sums) = machine.split();
            sums.take(work, found).unwrap();
        }
    }

    fn driven<W: SharedWork>(machine: &mut InOrder<W>) {
        drive(machine, &mut Buffer::new(BUFFER), &mut Unwatched).unwrap();
    }

    #[test]
    fn statistics_that_were_sent_are_the_same() {
        let checkpoint = opened(0.001);
        let ids: Vec<_> = (0..2).map(TensorId).collect();
        let new = || Survey::divided(checkpoint.clone(), ids.clone(), 30_000);
        let (mut one, mut other) = (new(), new());
        sent(&mut one);
        driven(&mut other);
        let found = one.take();
        assert_eq!(found.len(), 2);
        assert_eq!(found, other.take());
    }

    #[test]
    fn comparisons_that_were_sent_are_the_same() {
        let sides = (opened(0.001), opened(0.0011));
        let options = DiffOptions::default();
        let new = || Comparison::new(sides.0.clone(), sides.1.clone(), options);
        let (mut one, mut other) = (new(), new());
        sent(&mut one);
        driven(&mut other);
        let (one, other) = (one.into_report().json(), other.into_report().json());
        assert!(one.contains("differing"), "{one}");
        assert_eq!(one, other);
    }

    #[test]
    fn verifications_that_were_sent_are_the_same() {
        let checkpoint = opened(0.001);
        let new =
            || Verification::new(checkpoint.clone(), Checks::default(), true).with_statistics();
        let (mut one, mut other) = (new(), new());
        sent(&mut one);
        driven(&mut other);
        assert_eq!(one.hashes().len(), 2);
        assert_eq!(one.hashes(), other.hashes());
        assert_eq!(one.take_summaries(), other.take_summaries());
        let json = |machine: Verification| machine.into_report(None).unwrap().json(true);
        assert_eq!(json(one), json(other));
    }

    #[test]
    fn bytes_that_cannot_be_read_are_not_sent() {
        let checkpoint = opened(0.001);
        let survey = Survey::new(checkpoint.clone(), [TensorId(0)]);
        let failed = || -> Result<()> { Err(Error::damaged("cut")) };
        assert!(Surveying::pack(survey.work().end(0, None, failed())).is_none());
        let verification = Verification::new(checkpoint.clone(), Checks::default(), true);
        assert!(Verifying::pack(verification.work().end(0, None, failed())).is_none());
        let comparison = Comparison::new(checkpoint.clone(), checkpoint, DiffOptions::default());
        assert!(Comparing::pack(comparison.work().end(0, None, failed())).is_none());
    }
}
