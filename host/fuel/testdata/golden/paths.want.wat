(module
  (func $switch (param $n i32)
    global.get $fuel  i64.const 8  i64.sub  global.set $fuel
    global.get $fuel  i64.const 0  i64.lt_s  if unreachable end
    (block $end
      (block $two
        (block $one
          (br_table $one $two $end (local.get $n)))
        nop nop nop
        (br $end))
      nop nop)
    nop)
  (func $return (param $n i32)
    global.get $fuel  i64.const 4  i64.sub  global.set $fuel
    global.get $fuel  i64.const 0  i64.lt_s  if unreachable end
    (if (local.get $n)
      (then (return)))
    global.get $fuel  i64.const 70  i64.sub  global.set $fuel
    global.get $fuel  i64.const 0  i64.lt_s  if unreachable end
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop)
  (func $arms (param $n i32)
    global.get $fuel  i64.const 7  i64.sub  global.set $fuel
    global.get $fuel  i64.const 0  i64.lt_s  if unreachable end
    (if (local.get $n)
      (then
    global.get $fuel  i64.const 70  i64.sub  global.set $fuel
    global.get $fuel  i64.const 0  i64.lt_s  if unreachable end
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop)
      (else nop))
    (block $end
      (br_if $end (local.get $n))
    global.get $fuel  i64.const 70  i64.sub  global.set $fuel
    global.get $fuel  i64.const 0  i64.lt_s  if unreachable end
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop
    nop nop nop nop nop nop nop nop nop nop)
    nop)
  (global $fuel (export "refract_fuel") (mut i64) (i64.const 200000000))
  (global $depth (export "refract_depth") (export "refract_state_0") (mut i32) (i32.const 65536)))
