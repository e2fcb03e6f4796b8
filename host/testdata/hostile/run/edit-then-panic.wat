;; Changes the object in many ways, then panics: nothing of it may stay.
;; want: TrapError: unreachable
(data (i32.const 0) "metadata.labels")
(data (i32.const 16) "spec.ports")
(data (i32.const 32) "spec.new")
(func $bad
  (drop (call $remove (i32.const 1) (i32.const 0) (i32.const 15)))
  (drop (call $set_list (i32.const 1) (i32.const 16) (i32.const 10)))
  (call $copy (i32.const 1) (i32.const 32) (i32.const 8) (i32.const 2))
  unreachable)
