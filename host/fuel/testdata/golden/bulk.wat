;; Bulk instructions pay by their length, in a local of the pass; memory and table get a maximum.
(module
  (memory 1)
  (table 2 200000 funcref)
  (global $mine (mut i32) (i32.const 7))
  (func (param $n i32) (local i64)
    (memory.fill (i32.const 0) (i32.const 1) (local.get $n))
    (drop (memory.grow (i32.const 1)))
    (drop (table.grow (ref.null func) (local.get $n)))))
