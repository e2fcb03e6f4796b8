;; Refuses with bytes that are no text.
;; want: PluginFailedError: �
(data (i32.const 0) "\ff\fe\00")
(func $bad (call $fail (i32.const 0) (i32.const 3)))
