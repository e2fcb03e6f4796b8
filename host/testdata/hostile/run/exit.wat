;; Ends the process.
;; want: TrapError: exit
(func $bad (call $proc_exit (i32.const 0)))
