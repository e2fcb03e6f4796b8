;; Logs at a level that there is not.
;; want: AccessError: level
(func $bad (call $log (i32.const 99) (i32.const 0) (i32.const 0)))
