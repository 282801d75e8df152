//! The one program of the site: the page in a window, the core in a worker.

fn main() {
    if web_sys::window().is_some() {
        statelens_web::page::start();
    } else {
        statelens_web::dispatch::start();
    }
}
