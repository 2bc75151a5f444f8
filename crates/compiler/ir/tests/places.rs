//! Places go with their values, whatever numbers these get.

use overdrive_ir::entities::Block;
use overdrive_ir::function::Function;
use overdrive_ir::inst::{FloatOp, Inst, Terminator};
use overdrive_ir::opt::compact;

#[test]
fn values_keep_their_places_when_they_get_new_numbers() {
    let mut f = Function::new("f", 1);
    let push = |f: &mut Function, inst| f.push(Block(0), inst).expect("a result");
    f.places.stand_at(Some(4));
    let gone = push(&mut f, Inst::FConst(0));
    let a = push(&mut f, Inst::FConst(1));
    f.places.stand_at(Some(8));
    let sum = push(&mut f, Inst::Float(FloatOp::Add, a, a));
    f.places.stand_at(None);
    let added = push(&mut f, Inst::Float(FloatOp::Mul, sum, sum));
    assert_eq!(f.places.of(f.blocks[0].params[0]), None);
    assert_eq!([gone, a, sum, added].map(|v| f.places.of(v)), [Some(4), Some(4), Some(8), None]);

    let params = f.blocks[0].params.clone();
    f.terminate(Block(0), Terminator::Return(params[0]));
    f.blocks[0].insts.remove(0);
    compact::run(&mut f);
    let places: Vec<_> = f.blocks[0].insts.iter().map(|(inst, result)| f.place(inst, *result)).collect();
    assert_eq!(places, [Some(4), Some(8), None]);
}

#[test]
fn a_value_that_takes_a_number_again_has_its_own_place() {
    let mut f = Function::new("f", 0);
    f.places.stand_at(Some(2));
    f.push(Block(0), Inst::FConst(0));
    f.types.clear();
    f.places.stand_at(Some(6));
    let again = f.push(Block(0), Inst::FConst(1)).expect("a result");
    assert_eq!(f.places.of(again), Some(6));
}
