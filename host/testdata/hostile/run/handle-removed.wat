;; Writes to a place after it was removed.
;; want: AccessError: removed
(data (i32.const 0) "spec")
(data (i32.const 8) "x")
(func $bad (local $h i32)
  (local.set $h (call $get (i32.const 1) (i32.const 0) (i32.const 4)))
  (drop (call $remove (i32.const 1) (i32.const 0) (i32.const 4)))
  (call $set_string (local.get $h) (i32.const 8) (i32.const 1) (i32.const 0) (i32.const 4)))
