(module
  (memory 1 256)
  (table 2 131072 funcref)
  (global $mine (mut i32) (i32.const 7))
  (func (param $n i32) (local i64) (local $length i32)
    global.get $fuel  i64.const 8203  i64.sub  global.set $fuel
    global.get $fuel  i64.const 0  i64.lt_s  if unreachable end
    i32.const 0  i32.const 1  local.get $n
    local.tee $length  global.get $fuel  local.get $length  i64.extend_i32_u  i64.const 3  i64.shr_u  i64.sub  global.set $fuel
    global.get $fuel  i64.const 0  i64.lt_s  if unreachable end
    memory.fill
    (drop (memory.grow (i32.const 1)))
    ref.null func  local.get $n
    local.tee $length  global.get $fuel  local.get $length  i64.extend_i32_u  i64.sub  global.set $fuel
    global.get $fuel  i64.const 0  i64.lt_s  if unreachable end
    table.grow  drop)
  (global $fuel (export "refract_fuel") (mut i64) (i64.const 200000000))
  (global $depth (export "refract_depth") (mut i32) (i32.const 65536)))
