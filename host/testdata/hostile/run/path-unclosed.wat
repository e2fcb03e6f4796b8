;; Gives a path with an open bracket.
;; want: AccessError: spec
(data (i32.const 0) "spec.[x")
(func $bad (call $set_string (i32.const 1) (i32.const 0) (i32.const 7) (i32.const 0) (i32.const 4)))
