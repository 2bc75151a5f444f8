//! Machine code against the interpreter, on a mock heap in real memory.

mod check;
mod run;
mod world;

mod smoke;
mod cases;
mod numbers;
mod contract;
mod kept;
