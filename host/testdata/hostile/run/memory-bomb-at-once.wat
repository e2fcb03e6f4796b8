;; Asks for 4 GiB in one go.
;; want: LimitError: memory pages
(func $bad (if (i32.eq (memory.grow (i32.const 65535)) (i32.const -1)) (then unreachable)))
