;; Refuses the object.
;; want: PluginFailedError: not today
(data (i32.const 0) "not today")
(func $bad (call $fail (i32.const 0) (i32.const 9)))
