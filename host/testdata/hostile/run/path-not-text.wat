;; Gives a path that is not UTF-8.
;; want: AccessError: spec
(data (i32.const 0) "spec.\ff\fe")
(func $bad (call $set_string (i32.const 1) (i32.const 0) (i32.const 7) (i32.const 0) (i32.const 4)))
