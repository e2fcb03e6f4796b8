(module
  (func (param $n i32)
    global.get $fuel  i64.const 1  i64.sub  global.set $fuel
    global.get $fuel  i64.const 0  i64.lt_s  if unreachable end
    (loop $outer
      global.get $fuel  i64.const 2  i64.sub  global.set $fuel
      global.get $fuel  i64.const 0  i64.lt_s  if unreachable end
      (loop $inner
        global.get $fuel  i64.const 2  i64.sub  global.set $fuel
        global.get $fuel  i64.const 0  i64.lt_s  if unreachable end
        (br_if $inner (local.get $n)))
      (loop $empty)
      (br_if $outer (local.get $n))))
  (global $fuel (export "refract_fuel") (mut i64) (i64.const 200000000))
  (global $depth (export "refract_depth") (export "refract_state_0") (mut i32) (i32.const 65536)))
