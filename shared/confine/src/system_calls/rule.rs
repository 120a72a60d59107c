//! Rules about system calls, and what they ask of arguments.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{Error, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

/// Which calls a rule is about, and with which arguments; any, without a rule.
pub(super) type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Memory that is written and run.
pub(super) const WRITE_AND_EXECUTE: i32 = libc::PROT_WRITE | libc::PROT_EXEC;

/// Namespaces that clone(2) and unshare(2) make. That of time is made by the second alone,
/// whose bit is part of a signal's number in the first.
pub(super) const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWCGROUP,
];

/// The `index`th argument, of which `mask` has these bits.
pub(super) fn masked(index: u8, mask: i32, bits: i32) -> Result<SeccompCondition, Error> {
    let operator = SeccompCmpOp::MaskedEq(u64::from(mask.cast_unsigned()));
    let bits = u64::from(bits.cast_unsigned());
    Ok(SeccompCondition::new(
        index,
        SeccompCmpArgLen::Dword,
        operator,
        bits,
    )?)
}

/// The `index`th argument is this.
pub(super) fn is(index: u8, value: i32) -> Result<SeccompCondition, Error> {
    let value = u64::from(value.cast_unsigned());
    Ok(SeccompCondition::new(
        index,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Eq,
        value,
    )?)
}

/// The `index`th argument is another than this.
fn is_not(index: u8, value: i32) -> Result<SeccompCondition, Error> {
    let value = u64::from(value.cast_unsigned());
    Ok(SeccompCondition::new(
        index,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Ne,
        value,
    )?)
}

/// The `index`th argument is none of these.
pub(super) fn none_of(index: u8, values: &[i32]) -> Result<SeccompRule, Error> {
    let others = values.iter().map(|value| is_not(index, *value));
    all_of(others.collect::<Result<_, _>>()?)
}

/// Matches when all of these hold.
pub(super) fn all_of(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, Error> {
    Ok(SeccompRule::new(conditions)?)
}
