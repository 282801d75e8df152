//! PyTorch's own files: a pickle of the state dict beside the bytes of its storages.
//!
//! The zip file that `torch.save` writes since release 1.6 is
//! `NAME/data.pkl` (the pickle), `NAME/data/KEY` (a storage each, uncompressed),
//! `NAME/version`, and `NAME/byteorder` since 2.1. There is no specification but the sources:
//! `torch/serialization.py` and `caffe2/serialize/inline_container.cc` in
//! <https://github.com/pytorch/pytorch>.
//!
//! | | read | written |
//! |---|---|---|
//! | zip file, all versions, zip64, deflated members | yes | stored, zip64 where needed |
//! | strided views, shared storages, parameters, conj and neg bits | yes | made dense |
//! | sparse, quantised, meta tensors, subclasses | as far as they have data | see `write` |
//! | TorchScript, lite interpreter | tensors, attributes, constants; code is not shown | no |
//! | `torch.export` (`.pt2`) | the weights and constants; the program is not shown | no |
//! | the stream of releases before 1.6 | yes | no |
//! | tar files of releases before 0.2 | yes | no |

pub mod detect;
pub mod read;
#[cfg(test)]
pub(crate) mod tests;
pub mod write;
