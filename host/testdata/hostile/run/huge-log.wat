;; Logs all of its memory as one line.
;; want: ok
(func $bad (call $log (i32.const 1) (i32.const 0) (i32.const 65536)))
