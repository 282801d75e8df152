//! How the page keeps the result of a conversion.

use web_sys::File;

use crate::convert::message::ConversionResult;
use crate::page::model::PageModel;
use crate::page::model::tasks::TaskSlot;
use crate::protocol::error::ErrorText;
use crate::state::task::TaskState;

impl TaskSlot for ConversionResult {
    fn task(model: &mut PageModel) -> Option<&mut dyn TaskState> {
        Some(&mut model.convert.as_mut()?.task)
    }

    fn store(self: Box<Self>, model: &mut PageModel, done: bool, file: Option<File>) {
        if let Some(convert) = &mut model.convert {
            convert.task.set(self, done);
            convert.file = file;
        }
    }

    fn prepare_end(model: &mut PageModel, error: Option<&ErrorText>) {
        let Some(convert) = &mut model.convert else { return };
        convert.file = None;
        if error.is_none() && convert.is_running() {
            convert.cancelled = true;
        }
        // An error before the start, such as that of a newer plan, is shown too.
        if error.is_some() {
            convert.task.start();
        }
    }

    fn lost_work(model: &PageModel) -> Option<String> {
        let written = model.convert.as_ref().map(|convert| convert.options.name.clone());
        Some(format!("writing {}", written.unwrap_or_else(|| model.open_name())))
    }
}
