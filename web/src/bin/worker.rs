//! The dedicated worker that runs the core.

fn main() {
    statelens_web::worker::start();
}
