use _native::documents::Strings;
use _native::encoding::*;
use _native::merging::Tokens;
use _native::patterns::Scanner;
use std::time::Instant;
fn cpu() -> f64 {
    let mut t: libc::timespec = unsafe { std::mem::zeroed() };
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let b = std::fs::read(&args[1]).unwrap();
    let mut at = 0;
    let mut u = || {
        let x = u32::from_le_bytes(b[at..at + 4].try_into().unwrap());
        at += 4;
        x
    };
    let (n, m, phase1, _two) = (u(), u(), u(), u());
    let byte_ids: [u32; 256] = std::array::from_fn(|_| u());
    let mut at = 16 + 1024;
    let mut tokens = Vec::new();
    for _ in 0..n {
        let l = u32::from_le_bytes(b[at..at + 4].try_into().unwrap()) as usize;
        at += 4;
        tokens.push(b[at..at + l].to_vec());
        at += l;
    }
    let mut u = || {
        let x = u32::from_le_bytes(b[at..at + 4].try_into().unwrap());
        at += 4;
        x
    };
    let merges: Vec<MergeRule> = (0..m).map(|_| MergeRule { left: u(), right: u(), new: u() }).collect();
    let l = u() as usize;
    let pattern = String::from_utf8(b[at..at + l].to_vec()).unwrap();
    let mk = || {
        let mut t = Tokens::default();
        for x in &tokens {
            t.push(x);
        }
        t
    };
    let make = || {
        let mut d = Definition {
            tokens: mk(),
            byte_ids,
            merges: merges.clone(),
            phase1: phase1 as usize,
            scanner: Scanner::new(&pattern).unwrap(),
            fence: None,
            eligible: None,
        };
        if d.phase1 == d.merges.len() {
            d.phase1 = superword_rank(&d);
        }
        Encoder::new(d)
    };
    let text = std::fs::read_to_string(&args[2]).unwrap();
    let docs: Vec<&[u8]> = text.split("<|endoftext|>").map(|d| d.as_bytes()).collect();
    let rounds: usize = args[3].parse().unwrap();
    let mut res: Vec<(f64, f64)> = vec![];
    let mut hash = 0u64;
    let total: usize = docs.iter().map(|d| d.len()).sum();
    let mut hotv = vec![];
    for _ in 0..rounds {
        let e = make();
        let batch = Strings::new(docs.clone());
        let a = cpu();
        let (ids, _) = e.encode_batch(&batch, 1).unwrap();
        let c = cpu() - a;
        hash = ids.iter().fold(0u64, |h, &i| (h ^ i as u64).wrapping_mul(0x100000001b3));
        drop(ids);
        let a = cpu();
        let _ids = e.encode_batch(&batch, 1).unwrap();
        let w = cpu() - a;
        res.push((c, w));
        let mut k = 0;
        let mut hb = 0;
        while hb < 100_000 {
            hb += docs[k].len();
            k += 1;
        }
        e.with_state(|state| {
            let mut out = Vec::new();
            for _ in 0..3 {
                out.clear();
                for d in &docs[..k] {
                    e.encode(d, state, &mut out).unwrap();
                }
            }
            let a = cpu();
            let reps = 20_000_000 / hb;
            for _ in 0..reps {
                out.clear();
                for d in &docs[..k] {
                    e.encode(d, state, &mut out).unwrap();
                }
            }
            hotv.push((cpu() - a) / (reps * hb) as f64 * total as f64);
        });
    }
    let med = |mut v: Vec<f64>| {
        v.sort_by(|a, b| a.total_cmp(b));
        total as f64 / v[v.len() / 2] / 1e6
    };
    println!(
        "cold {:.0} warm {:.0} hot {:.0}  {:x}",
        med(res.iter().map(|r| r.0).collect()),
        med(res.iter().map(|r| r.1).collect()),
        med(hotv),
        hash
    );
    let _ = Instant::now();
}
