(module
  (import "host" "inc" (func $inc (param i32) (result i32)))
  (table 1 131072 funcref)
  (elem (i32.const 0) $plain)
  (func $plain (result i32)
    ;; a call of the host counts 256
    global.get $fuel  i64.const 258  i64.sub  global.set $fuel
    global.get $fuel  i64.const 0  i64.lt_s  if unreachable end
    (call $inc (i32.const 1)))
  (func $even (param $n i32) (result i32)
    ;; the longer of both ways
    global.get $fuel  i64.const 7  i64.sub  global.set $fuel
    global.get $fuel  i64.const 0  i64.lt_s  if unreachable end
    (if (result i32) (local.get $n)
      (then
        local.get $n  i32.const 1  i32.sub
        global.get $depth  i32.const 1  i32.sub  global.set $depth
        global.get $depth  i32.const 0  i32.lt_s  if unreachable end
        call $odd
        global.get $depth  i32.const 1  i32.add  global.set $depth)
      (else (call $plain))))
  (func $odd (param $n i32) (result i32)
    global.get $fuel  i64.const 5  i64.sub  global.set $fuel
    global.get $fuel  i64.const 0  i64.lt_s  if unreachable end
    local.get $n  i32.const 1  i32.sub
    global.get $depth  i32.const 1  i32.sub  global.set $depth
    global.get $depth  i32.const 0  i32.lt_s  if unreachable end
    call $even
    global.get $depth  i32.const 1  i32.add  global.set $depth)
  (func (export "indirect") (result i32)
    global.get $fuel  i64.const 3  i64.sub  global.set $fuel
    global.get $fuel  i64.const 0  i64.lt_s  if unreachable end
    i32.const 0
    global.get $depth  i32.const 1  i32.sub  global.set $depth
    global.get $depth  i32.const 0  i32.lt_s  if unreachable end
    call_indirect (result i32)
    global.get $depth  i32.const 1  i32.add  global.set $depth)
  (global $fuel (export "refract_fuel") (mut i64) (i64.const 200000000))
  (global $depth (export "refract_depth") (export "refract_state_0") (mut i32) (i32.const 65536)))
