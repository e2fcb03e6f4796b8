(module
  (func (export "count") (param $n i32) (result i32) (local $sum i32)
    ;; 1 for being called, 1 for the local.get at the end
    global.get $fuel  i64.const 2  i64.sub  global.set $fuel
    global.get $fuel  i64.const 0  i64.lt_s  if unreachable end
    (block $done
      (loop $next
        global.get $fuel  i64.const 12  i64.sub  global.set $fuel
        global.get $fuel  i64.const 0  i64.lt_s  if unreachable end
        (br_if $done (i32.eqz (local.get $n)))
        (local.set $sum (i32.add (local.get $sum) (local.get $n)))
        (local.set $n (i32.sub (local.get $n) (i32.const 1)))
        (br $next)))
    (local.get $sum))
  (global $fuel (export "refract_fuel") (mut i64) (i64.const 200000000))
  (global $depth (export "refract_depth") (export "refract_state_0") (mut i32) (i32.const 65536)))
