;; Uses the largest number as a handle.
;; want: AccessError: handle
(data (i32.const 0) "spec")
(func $bad (drop (call $get (i32.const -1) (i32.const 0) (i32.const 4))))
