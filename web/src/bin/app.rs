//! The page.

fn main() {
    statelens_web::page::start();
}
